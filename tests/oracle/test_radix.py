"""S15: the prefix tree as nodes of token identities."""

from tools.oracle.radix import RadixTree


def test_match_splits_where_the_known_prefix_ends():
    """Of 1 2 3 4 two tokens are shared; the tree then has a node for them and two below."""
    tree = RadixTree(page=1)
    tree.insert([1, 2, 3, 4])
    node, length = tree.match([1, 2, 9])
    assert (length, node.key, tree.size) == (2, [1, 2], 4)
    tree.insert([1, 2, 9])
    assert sorted(child.key for child in node.children.values()) == [[3, 4], [9]]
    assert tree.size == tree.evictable == 5


def test_only_whole_pages_match():
    """With pages of two, three shared tokens are one page."""
    tree = RadixTree(page=2)
    tree.insert([1, 2, 3, 4])
    assert tree.match([1, 2, 3, 9])[1] == 2
    assert tree.match([1])[1] == 0


def test_a_locked_path_stays_and_the_least_recently_touched_leaf_goes_whole():
    """One token wanted, a leaf of three goes; the locked one never."""
    tree = RadixTree(page=1)
    locked = tree.insert([1, 2])
    tree.insert([5, 6, 7])
    tree.insert([8])
    tree.match([5, 6, 7])
    tree.insert([9])
    tree.lock(locked)
    tree.evict(1)
    assert (tree.size, tree.evictable, tree.match([8])[1]) == (6, 4, 0)
    tree.evict(100)
    assert (tree.size, tree.evictable) == (2, 0)
    tree.unlock(locked)
    assert tree.evictable == 2


def test_a_parent_goes_after_its_children():
    """It becomes a leaf by then, and is evicted if that is not enough."""
    tree = RadixTree(page=1)
    tree.insert([1, 2])
    tree.insert([1, 2, 3])
    tree.evict(1)
    assert (tree.match([1, 2, 3])[1], tree.size) == (2, 2)
    tree.evict(1)
    assert tree.size == 0


def test_a_split_node_stays_locked():
    """Both halves are on the path of whoever runs there."""
    tree = RadixTree(page=1)
    end = tree.insert([1, 2, 3])
    tree.lock(end)
    tree.match([1])
    assert tree.evictable == 0
    tree.unlock(end)
    assert tree.evictable == 3

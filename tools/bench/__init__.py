"""How fast passcal is: medians of warm runs, in one process and one run, on thread time and on the wall clock.

`figures` says what a figure is and how it is printed, `stopwatch` measures, `measures` and `pressure` hold one function a figure,
`child` is what a fresh process does.
"""

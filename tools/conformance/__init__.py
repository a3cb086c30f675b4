"""The product against schedules recorded from the engines' own scheduler classes.

`recordings` finds and reads them, `adapters` turns a case into specs, `comparison` runs it and says what differs.
"""

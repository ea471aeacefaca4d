"""What `row_rules` imports."""


def shout(v):
    return v.upper() + "!"

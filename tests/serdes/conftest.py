"""Property tests here print a block that replays a failure, and are not timed: a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("serdes", deadline=None, print_blob=True)
settings.load_profile("serdes")

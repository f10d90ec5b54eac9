"""Settings of all tests in this folder."""

from hypothesis import settings

settings.register_profile("callahead", deadline=None)  # a busy machine is no failure
settings.load_profile("callahead")

"""Settings of all tests. A longer search: `pytest --hypothesis-profile=search tests/model`."""

from hypothesis import HealthCheck, settings

quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", derandomize=True, max_examples=60, **quiet)
settings.register_profile("search", max_examples=5000, print_blob=True, **quiet)
settings.load_profile("fixed")

"""The resources of all pipelines, by the profile that the environment names."""

import dagster as dg

from ebbtide.dagster import Resources
from resources.profiles import resources


@dg.component_instance
def of_profile(context: dg.ComponentLoadContext) -> Resources:
    """Return the component that sets them."""
    return resources()

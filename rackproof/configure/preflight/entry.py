"""Nothing but preflight, as a deploy file for pyinfra: what ``rackproof preflight`` plans."""

from deploys.preflight import preflight

preflight()

"""Payload capture: from the outcome of a request to a line on disk (spec, dispatch, section 5)."""

"""The driver that is in use."""
from types import SimpleNamespace

driver = SimpleNamespace(active=None)
driver.set_active = lambda active: setattr(driver, "active", active)

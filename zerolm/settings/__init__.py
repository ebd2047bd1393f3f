"""Settings: declared once by what has them; text, YAML and JSON become values, errors are one line."""

from zerolm.settings.messages import check_known, nearest, shown
from zerolm.settings.setting import REQUIRED, Setting, check_settings, parsed, setting_of, with_defaults

__all__ = [
    "REQUIRED",
    "Setting",
    "check_known",
    "check_settings",
    "nearest",
    "parsed",
    "setting_of",
    "shown",
    "with_defaults",
]

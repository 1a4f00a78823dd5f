"""Minimal settings. QUORLOCK_NODES has the lock's nodes, GATEWAY_URL the external services."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "an example has none")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
MIDDLEWARE = ["shop.locking.LockErrors"]
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["DATABASE"],
        "OPTIONS": {"timeout": 10},
    }
}
GATEWAY_URL = os.environ["GATEWAY_URL"]

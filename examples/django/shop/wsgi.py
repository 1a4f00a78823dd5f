"""QUORLOCK_NODES=redis://10.0.0.1,... gunicorn --preload --workers 4 shop.wsgi"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()

r"""The application.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  GATEWAY_URL=http://127.0.0.1:8900 gunicorn --preload --workers 4 shop.wsgi
"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()

from django.urls import path

from . import views

urlpatterns = [path("orders/<int:pk>/pay", views.pay)]

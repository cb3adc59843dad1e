package part3

package part4

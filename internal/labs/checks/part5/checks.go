package part5

package main

import _ "raftkv/raft/storage"

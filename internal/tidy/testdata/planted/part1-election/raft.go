package raft

import _ "raftkv/raft" // want imports

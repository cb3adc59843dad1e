package raft // want unbuilt

import "testing"

func TestNobodySees(t *testing.T) {}

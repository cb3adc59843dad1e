module raftkv/bench/peers

go 1.26

package sim

import (
	chance "math/rand/v2"
	_ "net/http" // want imports
	"time"
)

func wait() time.Duration {
	start := time.Now() // want clock
	seeded := chance.New(chance.NewPCG(1, 2))
	if chance.IntN(2) == seeded.IntN(2) { // want clock
		return time.Second
	}
	return start.Sub(start)
}

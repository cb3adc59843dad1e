package fleet

import (
	"fmt"
	"net"
	"os"
)

// Addresses returns n addresses of loopback that nobody listens at. They are below
// the range from which the system takes the ports of outgoing connections: a node
// that is killed and started again must find its port free.
func Addresses(n int) ([]string, error) {
	var all []string
	const first, last = 20000, 32000
	for i := range last - first {
		// Two runs at the same time begin to look at different places.
		addr := fmt.Sprintf("127.0.0.1:%d", first+(os.Getpid()*97+i)%(last-first))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		if all = append(all, addr); len(all) == n {
			return all, nil
		}
	}
	return nil, fmt.Errorf("fewer than %d ports are free from %d to %d", n, first, last)
}

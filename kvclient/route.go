package kvclient

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxHints bounds how often a round follows a server's word instead of the
// list: servers that know no better may point at each other in a circle.
const maxHints = 3

// vainRounds is after how many rounds without success a call asks everyone it
// has heard of. An election ends within about seven. Then whoever answers may have
// left the cluster without knowing who leads it, and who does may be among those
// that were thought to have left. They are asked now and then only, because one
// that is gone may cost an attempt's whole patience.
const vainRounds = 8

// A route decides whom one call asks next. It goes in rounds. A round asks
// first whom the client believes to lead, then wherever an answer points, then
// the rest of the list, nobody twice; and if none of them has answered, or in
// every round of vainRounds, those that may have left the cluster. Between two
// rounds the call pauses.
type route struct {
	queue    []string // whom to ask next in this round
	spare    []string // whom to ask after the others
	asked    []string // in this round
	answered bool     // somebody has
	busy     bool     // somebody has answered that it has no time
	hints    int      // how many of those asked were hints
	rounds   int      // this one included
}

// startRound begins a round, with first at its head unless that is "".
func (r *route) startRound(first string, endpoints, spare []string) {
	r.queue = r.queue[:0]
	if first != "" {
		r.queue = append(r.queue, first)
	}
	r.queue = append(r.queue, endpoints...)
	r.spare = spare
	r.asked = r.asked[:0]
	r.answered, r.busy = false, false
	r.hints = 0
	r.rounds++
}

// next returns whom to ask; ok is false if the round is over.
func (r *route) next() (endpoint string, ok bool) {
	for len(r.queue) > 0 {
		endpoint, r.queue = r.queue[0], r.queue[1:]
		if !slices.Contains(r.asked, endpoint) {
			r.asked = append(r.asked, endpoint)
			return endpoint, true
		}
	}
	if len(r.spare) == 0 || r.answered && r.rounds%vainRounds != 0 {
		return "", false
	}
	r.queue, r.spare = r.spare, nil
	return r.next()
}

// hint takes a server's word for who leads.
func (r *route) hint(endpoint string) {
	if endpoint != "" && r.hints < maxHints && !slices.Contains(r.asked, endpoint) {
		r.hints++
		r.queue = slices.Insert(r.queue, 0, endpoint)
	}
}

// normalEndpoint gives an address the one form in which endpoints are compared.
func normalEndpoint(address string) string {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return strings.TrimRight(address, "/")
}

// hintedEndpoint returns the endpoint of a LeaderHTTP, or "" if it leads
// nowhere: an address that a server listens on, such as ":8080" or
// "0.0.0.0:8080", names no host that others could ask.
func hintedEndpoint(leaderHTTP string) string {
	host, _, err := net.SplitHostPort(leaderHTTP)
	if err != nil || host == "" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return ""
	}
	return normalEndpoint(leaderHTTP)
}

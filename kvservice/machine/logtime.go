package machine

// LogTime is time as the log tells it, in milliseconds (LogCabin calls it
// cluster time). Leaders write it into every command. It does not pass while
// nobody leads, and it is not the time of day. 0 is before the first command.
type LogTime uint64

// LogClock makes a leader's stamps: the log time at which its leadership began,
// and its own monotonic time since. Nobody's time of day enters, so that a wrong
// clock cannot age the sessions of all clients at once. The zero LogClock
// has to be started.
type LogClock struct {
	base  LogTime
	start int64
}

// Start begins a leadership. base is the log time at the end of the leader's log,
// monotonicMillis the reading of its monotonic clock now.
func (c *LogClock) Start(base LogTime, monotonicMillis int64) {
	*c = LogClock{base: base, start: monotonicMillis}
}

// Stamp returns the log time of a command that is submitted when the monotonic
// clock reads monotonicMillis. It is never before the base.
func (c *LogClock) Stamp(monotonicMillis int64) LogTime {
	return c.base + LogTime(max(0, monotonicMillis-c.start))
}

package kvservice

import (
	"fmt"

	"raftkv/api"
	"raftkv/kvservice/machine"
)

// What decides what becomes of a write stands in the log (machine.Settings). A
// server may be started with a wish, but a wish decides nothing: it becomes what the
// first leader writes, or it is compared with what stands there. Were it read when
// an entry is applied, servers that were started with different flags would give one
// client two answers and, since the answer decides what is kept, would have two
// states.

// completed returns what this server as a leader wants the settings to be: those in
// force, with what they lack.
func (s *KVService) completed(settings machine.Settings) machine.Settings {
	if settings == (machine.Settings{}) {
		settings.ReportDuplicates = s.config.Duplicates == api.DuplicatesReport
	}
	return settings.WithDefaults()
}

// checkSettings returns an error if the log says something else than this server was
// started with. It is called when an entry or a snapshot has been taken in; the first
// one that brings the settings decides, before a client's command. The lock is held.
func (s *KVService) checkSettings() error {
	want := s.config.Duplicates
	if want == "" {
		return nil
	}
	got := s.duplicates()
	if got == "" || got == want {
		return nil
	}
	return fmt.Errorf("this cluster answers duplicates with %q, not %[2]q, and that is for good; start this server with --duplicates %[1]s or without the flag", got, want)
}

// duplicates returns what the log says of repeated requests; "" before it says
// anything. The lock is held.
func (s *KVService) duplicates() api.Duplicates {
	settings, written := s.machine.Settings()
	switch {
	case !written:
		return ""
	case settings.ReportDuplicates:
		return api.DuplicatesReport
	}
	return api.DuplicatesCached
}

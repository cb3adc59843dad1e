package api

// Status says in one word how a request ended. Its text is what stands in JSON.
type Status string

// The statuses. The comment says what has happened and what the client may do.
const (
	// StatusOK: done. Reading an absent key and a compare-and-set that found
	// another value are OK too; KeyFound and Swapped tell.
	StatusOK Status = "OK"

	// StatusDuplicateRequest: a repetition of a request that has ended. What its
	// result was is not kept; Outcome says how it ended.
	StatusDuplicateRequest Status = "DuplicateRequest"

	// StatusStaleRequest: the client has said before that it is done with this
	// number. Nothing was done now; whether it was done then is not known.
	StatusStaleRequest Status = "StaleRequest"

	// StatusWindowExceeded: the number is too far above what the client has
	// acknowledged. Nothing was done; send the same number again later.
	StatusWindowExceeded Status = "WindowExceeded"

	// StatusSessionExpired: the cluster does not know this ClientID. Nothing was
	// done for this copy of the request.
	StatusSessionExpired Status = "SessionExpired"

	// StatusRequestMismatch: the number was used before for another request.
	// Nothing was done; the client has a bug, or two clients share a ClientID.
	StatusRequestMismatch Status = "RequestMismatch"

	// StatusConditionFailed: the key has another version than the request demands.
	// Nothing was done; read the key and decide anew.
	StatusConditionFailed Status = "ConditionFailed"

	// StatusScanExpired: the server does not have the state (any more) in which the
	// scan was to go on. Nothing was done; begin the scan again.
	StatusScanExpired Status = "ScanExpired"

	// StatusBadRequest, StatusNotFound, StatusBadMethod, StatusTooLarge and
	// StatusUnsupportedMedia: the request makes no sense. Repeating it will not help.
	StatusBadRequest       Status = "BadRequest"
	StatusNotFound         Status = "NotFound"
	StatusBadMethod        Status = "BadMethod"
	StatusTooLarge         Status = "TooLarge"
	StatusUnsupportedMedia Status = "UnsupportedMedia"

	// StatusNotLeader: this server cannot take the request, nor pass it on.
	// Nothing was done; ask LeaderHTTP, or another server after a pause.
	StatusNotLeader Status = "NotLeader"

	// StatusBusy: too much is unfinished. Nothing was done; try again after a pause.
	StatusBusy Status = "Busy"

	// StatusConfigurationChanged: the configuration in force is not the one that
	// the change was made for. Nothing was done; look at the present one.
	StatusConfigurationChanged Status = "ConfigurationChanged"

	// StatusNotCaughtUp: a server shall vote that lacks too much of the log, or
	// has not been heard lately. Nothing was done; wait until it has caught up.
	StatusNotCaughtUp Status = "NotCaughtUp"

	// StatusFailedCommit: the server lost track of the request after it had gone
	// into a log. It may have been done, or may still be done. Repeat it only
	// with the same ClientID and RequestID.
	StatusFailedCommit Status = "FailedCommit"

	// StatusTimeout: the same, because it took too long.
	StatusTimeout Status = "Timeout"
)

// Duplicates says what a cluster answers to the repetition of a request.
type Duplicates string

// The two ways. All servers of a cluster go one of them, for good.
const (
	DuplicatesCached Duplicates = "cached" // the result of the first time
	DuplicatesReport Duplicates = "report" // StatusDuplicateRequest
)

// Outcome says what a client may believe about its write after one attempt. A
// call of several attempts was not applied only if every attempt was not.
type Outcome string

// The three outcomes.
const (
	OutcomeApplied    Outcome = "applied"     // carried out, exactly once
	OutcomeNotApplied Outcome = "not_applied" // not carried out, and no copy of this attempt ever will be
	OutcomeUnknown    Outcome = "unknown"     // may have been carried out, or may still be
)

// The exit codes of the command line, which follow the outcomes: a script can
// tell "no" from "perhaps".
const (
	ExitOK          = 0
	ExitRefused     = 1 // nothing was done, and the same request will not do better
	ExitAbsent      = 2 // get: there is no such key
	ExitNotSwapped  = 3 // cas: the key held another value; a condition on the version failed; member: another configuration is in force
	ExitUnavailable = 4 // nothing was done; later it may
	ExitUnknown     = 5 // it may have been done, or may still be
)

// meaning is a row of the table in docs/http.md.
type meaning struct {
	http    int
	outcome Outcome
	exit    int
}

// Where the outcome depends on the case, the row has the one that promises least.
var meanings = map[Status]meaning{
	StatusOK:                   {200, OutcomeApplied, ExitOK},
	StatusDuplicateRequest:     {200, OutcomeUnknown, ExitOK},
	StatusStaleRequest:         {409, OutcomeUnknown, ExitUnknown},
	StatusWindowExceeded:       {409, OutcomeUnknown, ExitUnknown},
	StatusSessionExpired:       {410, OutcomeUnknown, ExitUnknown},
	StatusRequestMismatch:      {422, OutcomeNotApplied, ExitRefused},
	StatusConditionFailed:      {409, OutcomeNotApplied, ExitNotSwapped},
	StatusScanExpired:          {410, OutcomeNotApplied, ExitUnavailable},
	StatusBadRequest:           {400, OutcomeNotApplied, ExitRefused},
	StatusNotFound:             {404, OutcomeNotApplied, ExitRefused},
	StatusBadMethod:            {405, OutcomeNotApplied, ExitRefused},
	StatusTooLarge:             {413, OutcomeNotApplied, ExitRefused},
	StatusUnsupportedMedia:     {415, OutcomeNotApplied, ExitRefused},
	StatusNotLeader:            {503, OutcomeNotApplied, ExitUnavailable},
	StatusBusy:                 {503, OutcomeNotApplied, ExitUnavailable},
	StatusConfigurationChanged: {409, OutcomeNotApplied, ExitNotSwapped},
	StatusNotCaughtUp:          {503, OutcomeNotApplied, ExitUnavailable},
	StatusFailedCommit:         {504, OutcomeUnknown, ExitUnknown},
	StatusTimeout:              {504, OutcomeUnknown, ExitUnknown},
}

// Known reports whether s is one of the statuses above. A client must take any
// other as an unknown outcome.
func (s Status) Known() bool {
	_, known := meanings[s]
	return known
}

// Outcome returns the outcome that goes with s. OutcomeUnknown stands for those
// statuses whose outcome depends on the case (DuplicateRequest, SessionExpired)
// and for a status that is not known.
func (s Status) Outcome() Outcome {
	if m, known := meanings[s]; known {
		return m.outcome
	}
	return OutcomeUnknown
}

// HTTPStatus returns the HTTP status code that goes with s, 500 for a status
// that is not known. Codes 503 come with a Retry-After header.
func HTTPStatus(s Status) int {
	if m, known := meanings[s]; known {
		return m.http
	}
	return 500
}

// ExitCode returns the exit code of a command whose last answer was r.
// A status that is not known is ExitUnknown.
func ExitCode(r Response) int {
	head := r.Head()
	m, known := meanings[head.RespStatus]
	if !known {
		return ExitUnknown
	}
	if head.RespStatus == StatusOK {
		switch r := r.(type) {
		case *GetResponse:
			if !r.KeyFound {
				return ExitAbsent
			}
		case *CASResponse:
			if !r.Swapped {
				return ExitNotSwapped
			}
		}
	}
	return m.exit
}

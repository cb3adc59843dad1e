package kvservice

// DataStore is the keys and their values. It must be used by one goroutine at a time.
type DataStore struct {
	data map[string]string
}

// NewDataStore returns an empty store.
func NewDataStore() *DataStore {
	return &DataStore{data: make(map[string]string)}
}

// Get returns the value of key and whether it has one.
func (ds *DataStore) Get(key string) (string, bool) {
	value, found := ds.data[key]
	return value, found
}

// Put gives key a value. It returns the one that the key had before.
func (ds *DataStore) Put(key, value string) (string, bool) {
	prev, found := ds.data[key]
	ds.data[key] = value
	return prev, found
}

// Append puts value behind what key has, which may be nothing. It returns the
// value that the key had before.
func (ds *DataStore) Append(key, value string) (string, bool) {
	prev, found := ds.data[key]
	ds.data[key] = prev + value
	return prev, found
}

// CAS gives key a value if it has compare now. It returns the one that it had before.
func (ds *DataStore) CAS(key, compare, value string) (string, bool) {
	prev, found := ds.data[key]
	if found && prev == compare {
		ds.data[key] = value
	}
	return prev, found
}

package machine

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Rows beside a map, which is slow and obvious; and what was lent is never
// changed by whoever borrowed it.
func TestRecordsBesideAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows records
		twin := map[uint64]record{}
		acked := uint64(0)
		type lent struct {
			rows *records
			twin map[uint64]record
		}
		var before []lent
		requireSame := func(rows *records, twin map[uint64]record) {
			require.Equal(t, len(twin), rows.Len())
			numbers := slices.Sorted(maps.Keys(twin))
			rows.Scan(func(number uint64, r record) bool {
				require.Equal(t, numbers[0], number)
				require.Equal(t, twin[number], r)
				numbers = numbers[1:]
				return true
			})
			require.Empty(t, numbers)
		}
		number := rapid.Custom(func(t *rapid.T) uint64 { return acked + rapid.Uint64Range(1, 12).Draw(t, "above acked") })
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				n, r := number.Draw(t, "number"), record{result: Result{Value: rapid.StringN(0, 3, -1).Draw(t, "value")}}
				rows.Set(n, r)
				twin[n] = r
			},
			"get": func(t *rapid.T) {
				n := number.Draw(t, "number")
				want, recorded := twin[n]
				r, found := rows.Get(n)
				require.Equal(t, recorded, found)
				require.Equal(t, want, r)
			},
			"acknowledge": func(t *rapid.T) {
				acked = number.Draw(t, "through")
				var bytes uint64
				for n, r := range twin {
					if n <= acked {
						bytes += r.valueBytes()
						delete(twin, n)
					}
				}
				require.Equal(t, bytes, rows.acknowledge(acked))
			},
			"lend": func(*rapid.T) {
				old := rows
				before = append(before, lent{&old, maps.Clone(twin)})
				rows = old.lend()
			},
			"": func(*rapid.T) {
				requireSame(&rows, twin)
				for _, l := range before {
					requireSame(l.rows, l.twin)
				}
			},
		})
	})
}

// A value that was acknowledged does not stay in memory behind its row, and the
// rows do not grow with the numbers of a client.
func TestRecordsForgetWhatIsAcknowledged(t *testing.T) {
	var rows records
	for n := range uint64(10_000) {
		rows.Set(n+1, record{result: Result{Value: "v"}})
		rows.acknowledge(max(n, 100) - 100)
		for _, r := range rows.rows[:rows.gone] {
			require.Zero(t, r)
		}
	}
	require.LessOrEqual(t, cap(rows.rows), 512)
}

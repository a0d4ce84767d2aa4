package store

import (
	"testing"
)

// FuzzParsePromise reads whatever is in the file of a promise: nothing in it may have the role panic, and only a promise that says what is to be done is one.
func FuzzParsePromise(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","phase":"promised"}`,
		`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","node":"n","phase":"begun","member":{"memberId":"ab","lastIndex":"7"}}`,
		`{"version":1,"id":"000102030405060708090a0b0c0d0e0f","phase":"forced"}`,
		`{"version":2}`, `{"version":1,"id":"ab","phase":"done","node":"n"}`, `{}`, ``, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := parsePromise(content)
		if err != nil {
			return
		}
		if CheckRecoveryID(p.ID) != nil || promiseMarks[p.Phase] == "" || p.Phase != Promised && p.Node == "" {
			t.Errorf("accepted %+v", p)
		}
		_, _ = p.State(), p.Message()
	})
}

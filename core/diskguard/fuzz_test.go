package diskguard

import "testing"

func FuzzParseStopped(f *testing.F) {
	f.Add([]byte(`{"version":1,"stopped":{"hog":{"bytes":5,"time":"2026-01-02T03:04:05Z","reason":"filled the disk"}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"stopped":{"../x":{}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		stopped, err := parseStopped(content)
		if (stopped == nil) == (err == nil) {
			t.Fatalf("%v, %v", stopped, err)
		}
		for role, s := range stopped {
			if s.Reason == "" || len(s.Reason) > maxReason {
				t.Fatalf("%s: %v", role, s)
			}
		}
	})
}

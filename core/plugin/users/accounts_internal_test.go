package users

import (
	"strings"
	"testing"
)

func TestAccountsInARange(t *testing.T) {
	t.Parallel()
	of := uidRange{Start: 1000, Count: 16}
	for content, want := range map[string]string{
		"root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/:/bin/sh\n": "ann 1000",
		"ann:x:1015:100::/:/bin/sh":                                  "ann 1015",
		"ann:x:999:100::/:/bin/sh\nbob:x:1016:100::/:/bin/sh\n":      "",
		"#ann:x:1000:1\n:x:1000:1\n+\nann:x\nann:x:-1000:1\n\n":      "",
		"ann:x:18446744073709551615:1":                               "",
	} {
		if who, theirs, err := accountIn(strings.NewReader(content), 2, false, of); err != nil || strings.TrimSpace(who+" "+theirs) != want {
			t.Errorf("%q: %s %s, %v", content, who, theirs, err)
		}
	}
	for content, want := range map[string]string{
		"ann:100000:65536\nbob:500:501\n": "bob 500 to 1000",
		"ann:500:500\n":                   "",
		"ann:1015:1":                      "ann 1015",
		"ann:1016:65536\nbob:1000:0\nx:1": "",
	} {
		if who, theirs, err := accountIn(strings.NewReader(content), 1, true, of); err != nil || strings.TrimSpace(who+" "+theirs) != want {
			t.Errorf("%q: %s %s, %v", content, who, theirs, err)
		}
	}
}

// Whatever is in a file of accounts: who is found has an ID of the range, and a name that can be shown.
func FuzzAccounts(f *testing.F) {
	for _, seed := range []string{"", "root:x:0:0:root:/root:/bin/sh\n", "ann:1000:16\n", "ann:\x1b[31m:1000:1", "a:4294967295:4294967295", strings.Repeat("x", 100) + ":1000:1"} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	of := uidRange{Start: 1000, Count: 16}
	f.Fuzz(func(t *testing.T, content []byte, counted bool) {
		who, theirs, err := accountIn(strings.NewReader(string(content)), 1, counted, of)
		if err != nil || who == "" {
			return
		}
		if theirs == "" || strings.ContainsAny(who, "\x00\x1b\n") || len(who) > 4*maxName {
			t.Errorf("%q: %q %q", content, who, theirs)
		}
	})
}

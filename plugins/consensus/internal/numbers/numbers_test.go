package numbers_test

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
)

func TestLeasesCarryTheirUser(t *testing.T) {
	for _, number := range []uint32{1, 2, 1000, numbers.Max} {
		seen := make(map[int64]bool)
		for range 1000 {
			id := numbers.NewLease(number)
			if id <= 0 || numbers.OfLease(id) != number {
				t.Fatalf("the lease %#x is that of number %d, want %d", id, numbers.OfLease(id), number)
			}
			seen[id] = true
		}
		if len(seen) < 999 {
			t.Errorf("%d different leases of 1000", len(seen))
		}
	}
	for _, id := range []int64{0, 1, 1<<40 - 1, -1, -1 << 63, -1 << 40} {
		if number := numbers.OfLease(id); number != 0 {
			t.Errorf("the lease %#x is that of number %d, want nobody's", id, number)
		}
	}
}

func TestUserOf(t *testing.T) {
	for key, want := range map[string]string{
		numbers.Key("ant"): "ant", numbers.LastKey: "", numbers.Prefix: "", numbers.Prefix + "root": "", numbers.Prefix + "a/b": "", "/reeve/users/ant": "",
	} {
		if user, ok := numbers.UserOf(key); ok != (want != "") || ok && user != want {
			t.Errorf("%s: %q, %t, want %q", key, user, ok, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "01", "+1", "8388607", "8388608", "4294967296", "-1", "1\n"} {
		f.Add([]byte(seed), int64(len(seed))<<40)
	}
	f.Fuzz(func(t *testing.T, content []byte, lease int64) {
		if number, err := numbers.Parse(content); err == nil {
			if number == 0 || number > numbers.Max || numbers.Format(number) != string(content) {
				t.Fatalf("%q was read as %d", content, number)
			}
			if id := numbers.NewLease(number); numbers.OfLease(id) != number || id <= 0 {
				t.Fatalf("the lease %#x of %d", id, number)
			}
		}
		if number := numbers.OfLease(lease); number > numbers.Max || lease >= 0 && int64(number) != lease>>40 || lease < 0 && number != 0 {
			t.Fatalf("the lease %#x is that of number %d", lease, number)
		}
	})
}

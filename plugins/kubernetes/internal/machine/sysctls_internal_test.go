package machine

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestOrder: routers of IPv6 are kept before the machine forwards, which is when the kernel forgets those that it is not to keep.
func TestOrder(t *testing.T) {
	names := []string{"net/ipv6/conf/all/forwarding", "net/ipv4/ip_forward", "net/ipv6/conf/eth0/accept_ra", "kernel/panic"}
	slices.SortFunc(names, inOrder)
	if want := []string{"kernel/panic", "net/ipv6/conf/eth0/accept_ra", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"}; !slices.Equal(names, want) {
		t.Errorf("they are set in the order %q", names)
	}
}

func FuzzSysctls(f *testing.F) {
	f.Add([]byte(`{"version":1,"boot":"b","former":[{"name":"net/ipv4/ip_forward","namespace":"cookie 1","was":"0","set":"1","with":{"net/ipv4/conf/all/forwarding":"0"}}]}`))
	f.Add([]byte(`{"version":1,"boot":"b","former":[{"name":"../x","was":"0","set":"1"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		known, err := parseRecord(content)
		if err != nil {
			return
		}
		for _, former := range known.Former {
			if !validSysctl(former.Name) {
				t.Errorf("it would write %q", former.Name)
			}
		}
		again, err := json.Marshal(known)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := parseRecord(again)
		if err != nil {
			t.Fatalf("it does not read what it writes: %v", err)
		}
		if third, err := json.Marshal(twice); err != nil || !bytes.Equal(again, third) {
			t.Errorf("%s is read as %s, %v", again, third, err)
		}
	})
}

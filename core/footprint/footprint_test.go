package footprint

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

func resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		t.Skip("this kernel does not tell RssFile")
	}
	kB, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}

// The process works on, with less of its executable resident.
func TestGiveBack(t *testing.T) {
	executable, err := os.ReadFile("/proc/self/exe")
	if err != nil || len(executable) == 0 {
		t.Fatal(err)
	}
	before := resident(t)
	if err := GiveBack(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%d kB of files are resident, after %d", after, before)
	}
}

func TestClean(t *testing.T) {
	const exe = "/usr/lib/reeve/reeved"
	for line, want := range map[string]bool{
		"00400000-01a00000 r-xp 00000000 08:01 12345   /usr/lib/reeve/reeved":           true,
		"01a00000-02a00000 r--p 01600000 08:01 12345   /usr/lib/reeve/reeved":           true,
		"02a00000-02b00000 rw-p 02600000 08:01 12345   /usr/lib/reeve/reeved":           false,
		"7f0000000000-7f0000001000 r--p 00000000 08:01 9   /usr/lib/x86/libc.so":        false,
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0":                               false,
		"7ffe00000000-7ffe00001000 r-xp 00000000 00:00 0   [vdso]":                      false,
		"nonsense r-xp 00000000 08:01 12345   /usr/lib/reeve/reeved":                    false,
		"02b00000-02a00000 r-xp 00000000 08:01 12345   /usr/lib/reeve/reeved":           false,
		"00400000-01a00000 r-xp 00000000 08:01 12345   /usr/lib/reeve/reeved (deleted)": false,
	} {
		if _, _, ok := clean(line, exe); ok != want {
			t.Errorf("%s: %v", line, ok)
		}
	}
}

package mountinfo_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/mountinfo"
)

func TestParse(t *testing.T) {
	mounts, err := mountinfo.Parse([]byte(`36 35 98:0 /mnt\0401 /a\011b rw,nosuid master:1 shared:2 - ext3 /dev/root rw,errors=continue
37 35 0:21 / /\134 rw - tmpfs none
`))
	if err != nil || len(mounts) != 2 {
		t.Fatalf("%+v, %v", mounts, err)
	}
	first := mounts[0]
	if first.Device != unix.Mkdev(98, 0) || first.Root != "/mnt 1" || first.Target != "/a\tb" || first.Type != "ext3" || first.Source != "/dev/root" ||
		!slices.Equal(first.Options, []string{"rw", "nosuid"}) || !slices.Equal(first.Super, []string{"rw", "errors=continue"}) || mounts[1].Target != `/\` {
		t.Errorf("%+v", mounts)
	}
	for _, wrong := range []string{"36 35 98:0 / /a rw", "36 35 98 / /a rw - ext4 x rw", "x", "36 35 a:b / /a rw - ext4 x"} {
		if _, err := mountinfo.Parse([]byte(wrong)); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
	own, err := mountinfo.Own()
	if err != nil || len(own) == 0 {
		t.Errorf("own mounts: %v, %v", own, err)
	}
}

// Whatever parses as a list of mounts has a mount for every line.
func FuzzParse(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt\\0401 /a\\011b rw,nosuid master:1 - ext3 /dev/root rw\n"))
	f.Add([]byte("36 35 98:0 / / rw - ext4 \\04 rw"))
	f.Add([]byte("x\n\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		mounts, err := mountinfo.Parse(content)
		if err == nil && len(mounts) != len(strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")) && len(content) > 0 {
			t.Errorf("%d mounts of %q", len(mounts), content)
		}
	})
}

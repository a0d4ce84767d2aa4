package install_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	script := filepath.Join(workspace(t), "packaging", "deb", "version")
	// In the order in which one replaces the other.
	ordered := []struct{ described, want string }{
		{"0123abc", "0.0.0+git.0123abc"},
		{"0123abc-dirty", "0.0.0+git.0123abc.dirty"},
		{"v1.2.3-rc.1", "1.2.3~rc.1"},
		{"v1.2.3-rc.1-4-g0123abc", "1.2.3~rc.1+4.g0123abc"},
		{"v1.2.3-rc.2", "1.2.3~rc.2"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-dirty", "1.2.3+dirty"},
		{"v1.2.4-4-g0123abc", "1.2.4+4.g0123abc"},
		{"v1.2.4-14-g0123abc-dirty", "1.2.4+14.g0123abc.dirty"},
		{"v1.10.0", "1.10.0"},
	}
	for i, test := range ordered {
		got := strings.TrimSpace(run(t, exec.Command(script, test.described)))
		if got != test.want {
			t.Errorf("%s becomes %s, want %s", test.described, got, test.want)
		}
		if i == 0 {
			continue
		}
		compare := exec.Command("dpkg", "--compare-versions", ordered[i-1].want, "lt", test.want)
		if said, err := compare.CombinedOutput(); err != nil {
			if _, missing := exec.LookPath("dpkg"); missing != nil {
				t.Skip("dpkg is not installed: the order of versions is not checked")
			}
			t.Errorf("%s does not come before %s: %v %s", ordered[i-1].want, test.want, err, said)
		}
	}
	for _, odd := range []string{"unknown", "feature/x y", "v1", "v1.2.3+meta"} {
		got := strings.TrimSpace(run(t, exec.Command(script, odd)))
		if said, err := exec.Command("dpkg", "--validate-version", got).CombinedOutput(); err != nil && !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s becomes %s: %s", odd, got, said)
		}
	}
}

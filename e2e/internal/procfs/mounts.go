package procfs

import (
	"fmt"
	"os"
	"strings"
)

// Mounts returns where something is mounted, in the order in which it was.
func Mounts() ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var targets []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("/proc/self/mountinfo: a line of %d fields", len(fields))
		}
		targets = append(targets, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[4]))
	}
	return targets, nil
}

package machine

import (
	"fmt"
	"path/filepath"
)

// MakeBelow makes a group below that of the node, in every hierarchy, for processes of its own.
func (c *Cgroups) MakeBelow(name string) error {
	for _, h := range c.hierarchies {
		above := c.directory(h)
		group := filepath.Join(above, name)
		err := makeGroup(group)
		if err == nil && !h.unified && h.has("cpuset") {
			err = inherit(above, group)
		}
		if err != nil {
			return fmt.Errorf("machine: make the control group %s: %w", group, err)
		}
	}
	return nil
}

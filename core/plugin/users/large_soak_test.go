//go:build soak

package users

import (
	"strings"
	"testing"
)

// It writes the file of the users a thousand times.
func TestUsersRunOut(t *testing.T) {
	t.Parallel()
	file, dir := ranges(t)
	users := reserve(t, file, dir, "a")
	for n := range 1023 {
		uidOf(t, users, "role-"+strings.Repeat("x", n%20)+string(rune('a'+n%26))+"-"+strings.Repeat("y", n/26))
	}
	if _, _, err := users.Of("one-too-many"); err == nil {
		t.Error("more users were given than the range has")
	}
}

package users

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/proto/limits"
)

// maxAccountLine is the longest line that is read of a file of accounts, in bytes.
const maxAccountLine = 1 << 20

// maxName is how much of the name of an account an error shows, in bytes.
const maxName = 1 << 10

// accountFiles are where a host keeps its accounts, and what each line of them gives away: one ID, or for containers of a user as many as the field after
// it says.
var accountFiles = []struct {
	path, what string
	field      int
	counted    bool
}{
	{"/etc/passwd", "user", 2, false},
	{"/etc/group", "group", 2, false},
	{"/etc/subuid", "the containers of user", 1, true},
	{"/etc/subgid", "the containers of group", 1, true},
}

// RangeError says that user IDs that were chosen for a node are somebody else's.
type RangeError struct {
	// Range is what was chosen, and Theirs the IDs of it that belong to Of.
	Range, Of, Theirs string
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("the user IDs %s are not free: %s has %s; choose others (sandbox.users in the node's parameters)", e.Range, e.Of, e.Theirs)
}

// freeOfAccounts returns a *RangeError if an account of the host, or what it may give to containers, has an ID of the range. Such an account could do to a
// role whatever the role can do to itself.
func freeOfAccounts(r uidRange) error {
	for _, file := range accountFiles {
		content, err := os.Open(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		who, theirs, err := accountIn(content, file.field, file.counted, r)
		_ = content.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file.path, err)
		}
		if who != "" {
			return &RangeError{Range: r.String(), Of: fmt.Sprintf("%s %q (%s)", file.what, who, file.path), Theirs: theirs}
		}
	}
	return nil
}

// accountIn is the first account whose IDs overlap with a range, and the IDs; "" if there is none. Lines that say nothing are passed over, as the C library
// does.
func accountIn(content io.Reader, field int, counted bool, r uidRange) (who, theirs string, err error) {
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, maxAccountLine)
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) <= field || counted && len(fields) <= field+1 || strings.HasPrefix(fields[0], "#") || fields[0] == "" {
			continue
		}
		first, err := strconv.ParseUint(fields[field], 10, 32)
		if err != nil {
			continue
		}
		count := uint64(1)
		if counted {
			if count, err = strconv.ParseUint(fields[field+1], 10, 32); err != nil || count == 0 {
				continue
			}
		}
		if first+count <= uint64(r.Start) || first >= uint64(r.Start)+uint64(r.count()) {
			continue
		}
		theirs = strconv.FormatUint(first, 10)
		if count > 1 {
			theirs += " to " + strconv.FormatUint(first+count-1, 10)
		}
		return limits.Clean(limits.Cut(fields[0], maxName)), theirs, nil
	}
	return "", "", lines.Err()
}

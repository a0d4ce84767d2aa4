package hostapi

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/hostfile"
)

// attributes are the extended attributes of a file by name, among them its access list (system.posix_acl_access) and its label (security.selinux). They do
// not have those that the kernel makes of the content.
type attributes map[string]string

// ofContent are the attributes that the kernel makes of the content, and makes anew.
var ofContent = []string{"security.ima", "security.evm"}

const accessList = "system.posix_acl_access"

const (
	// The kernel's limits.
	maxAttributeNames = 64 << 10
	maxAttribute      = 64 << 10
	// maxAttributes bounds all attributes of a file, which the core holds in memory. ext4 and XFS have some KiB of them.
	maxAttributes = 1 << 20
)

func attributesOf(file *os.File) (attributes, error) {
	fd := int(file.Fd())
	buffer := make([]byte, max(maxAttributeNames, maxAttribute))
	n, err := unix.Flistxattr(fd, buffer)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, total := make(attributes), 0
	for name := range strings.SplitSeq(string(buffer[:n]), "\x00") {
		if name == "" || slices.Contains(ofContent, name) {
			continue
		}
		n, err := unix.Fgetxattr(fd, name, buffer)
		switch {
		case err == nil:
			if total += n; total > maxAttributes {
				return nil, hostfile.Errorf(codes.FailedPrecondition, nil, "its attributes have more than %d bytes in all: remove some, or grant another path", maxAttributes)
			}
			found[name] = string(buffer[:n])
		case errors.Is(err, unix.ENODATA): // removed meanwhile
		default:
			return nil, hostfile.Errorf(codes.PermissionDenied, err, "its attribute %s cannot be read (%v): run the core as root, or remove the attribute", name, err)
		}
	}
	return found, nil
}

// late are the attributes that a new file gets last, since they have permissions.
var late = []string{accessList}

// copy gives a new file those attributes that belong to it early, or the late ones. The early ones include that it has no others, such as an access list that it
// inherited from its directory.
func (a attributes) copy(to *os.File, isLate bool) error {
	fd := int(to.Fd())
	has, err := attributesOf(to)
	if err != nil {
		return err
	}
	for name := range has {
		// A label is not removed: every file has one where there are labels.
		if _, wanted := a[name]; wanted || isLate || !strings.HasPrefix(name, "system.") {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return hostfile.Errorf(codes.FailedPrecondition, err, "a new file has the attribute %s, which this one does not have, and which cannot be removed (%v): grant another path", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if now, is := has[name]; slices.Contains(late, name) != isLate || is && now == a[name] {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(a[name]), 0); err != nil {
			return hostfile.Errorf(codes.FailedPrecondition, err,
				"its attribute %s cannot be given to a new file (%v), and would be lost: run the core as root, or remove the attribute", name, err)
		}
	}
	return nil
}

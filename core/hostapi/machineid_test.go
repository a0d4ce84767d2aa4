package hostapi_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/inorder"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	machineID = "0123456789abcdef0123456789abcdef"
	otherID   = "fedcba9876543210fedcba9876543210"
)

func TestSetMachineID(t *testing.T) {
	for name, test := range inorder.Of(map[string]struct {
		before  string // "-": no file
		want    codes.Code
		says    string
		changed bool
		after   string
		other   bool // whether the refusal is typed as that of a machine that has another ID
	}{
		"no file":                     {before: "-", changed: true, after: machineID + "\n"},
		"empty":                       {before: "", changed: true, after: machineID + "\n"},
		"a newline":                   {before: "\n", changed: true, after: machineID + "\n"},
		"uninitialized":               {before: "uninitialized\n", changed: true, after: machineID + "\n"},
		"zeros":                       {before: strings.Repeat("0", 32) + "\n", changed: true, after: machineID + "\n"},
		"the same":                    {before: machineID + "\n", after: machineID + "\n"},
		"the same, written otherwise": {before: strings.ToUpper(machineID), after: strings.ToUpper(machineID)},
		"another":                     {before: otherID + "\n", want: codes.FailedPrecondition, says: "has the ID " + otherID, after: otherID + "\n", other: true},
		"garbage":                     {before: "\xff" + otherID, want: codes.FailedPrecondition, says: "not a machine ID", after: "\xff" + otherID},
		"two IDs":                     {before: machineID + "\n" + otherID, want: codes.FailedPrecondition, says: "not a machine ID", after: machineID + "\n" + otherID},
	}) {
		t.Run(name, func(t *testing.T) {
			dir := sharedDir(t)
			path := filepath.Join(dir, "machine-id")
			if test.before != "-" {
				mustWrite(t, path, test.before, 0o644)
			}
			client := newNode(t, nil).client(remitOf("role.1", &rolev1.Grant{Name: "set-machine-id", Parameters: map[string]string{"path": path}}))
			response, err := client.SetMachineID(within(t), &hostv1.SetMachineIDRequest{MachineId: machineID})
			mustRefuse(t, err, test.want, test.says)
			if response.GetChanged() != test.changed || response.GetInPlace() {
				t.Errorf("answered %v", response)
			}
			if got := hasReason(err, hostv1.ReasonOtherMachineID); got != test.other {
				t.Errorf("the refusal says that the machine has another ID: %v", got)
			}
			mustHold(t, path, test.after)
			mustHaveOnly(t, dir, "machine-id")
		})
	}
}

func hasReason(err error, reason string) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == hostv1.ReasonDomain && info.GetReason() == reason {
			return true
		}
	}
	return false
}

func TestMachineIDsThatAreRefused(t *testing.T) {
	dir := sharedDir(t)
	path := filepath.Join(dir, "machine-id")
	client := newNode(t, nil).client(remitOf("role.1", &rolev1.Grant{Name: "set-machine-id", Parameters: map[string]string{"path": path}}))
	for _, id := range []string{"", machineID[1:], machineID + "0", strings.ToUpper(machineID), strings.Repeat("0", 32), machineID[:31] + "g", machineID[:31] + "\n", nodeID} {
		_, err := client.SetMachineID(within(t), &hostv1.SetMachineIDRequest{MachineId: id})
		mustRefuse(t, err, codes.InvalidArgument, "is not one")
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Fatal(err)
	}
	_, err := client.SetMachineID(within(t), &hostv1.SetMachineIDRequest{MachineId: machineID})
	mustRefuse(t, err, codes.FailedPrecondition, "symbolic link", path)
	mustHaveOnly(t, dir, "machine-id")
}

// FuzzMachineID: what is taken for an ID is one, and is found again when it is written.
func FuzzMachineID(f *testing.F) {
	for _, seed := range []string{"", "\n", "uninitialized\n", machineID, machineID + "\n", " " + strings.ToUpper(machineID) + "\t\n", strings.Repeat("0", 32), machineID + "\n\n" + otherID, "\xff", "\x00"} {
		f.Add([]byte(seed))
	}
	valid := regexp.MustCompile(`^[0-9a-f]{32}$`)
	f.Fuzz(func(t *testing.T, content []byte) {
		id, err := hostapi.ReadMachineID(content)
		switch {
		case err != nil && !errors.Is(err, hostapi.ErrNotMachineID), err != nil && id != "":
			t.Errorf("%q: %q, %v", content, id, err)
		case id == "":
		case !valid.MatchString(id) || hostapi.CheckMachineID(id) != nil || !strings.Contains(strings.ToLower(string(content)), id):
			t.Errorf("%q is taken for the ID %q", content, id)
		default:
			if again, err := hostapi.ReadMachineID([]byte(id + "\n")); err != nil || again != id {
				t.Errorf("%q becomes %q, %v", id, again, err)
			}
		}
		if err := hostapi.CheckMachineID(string(content)); (err == nil) != (valid.Match(content) && string(content) != strings.Repeat("0", 32)) {
			t.Errorf("%q: %v", content, err)
		}
	})
}

// FuzzHostname: what is taken for a host name is one, and is found again when it is written.
func FuzzHostname(f *testing.F) {
	for _, seed := range []string{"", "a", "a.b", "a-b.example", nodeID, "192.0.2.1", "42", "-", "a..b", "a\nb", "# a\nb\n", " a \r\n", "\xff", strings.Repeat("x", 64), strings.Repeat("a.", 32)} {
		f.Add(seed)
	}
	label := `[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?`
	valid, number := regexp.MustCompile(`^(`+label+`\.)*`+label+`\z`), regexp.MustCompile(`(^|\.)[0-9]+\z`)
	f.Fuzz(func(t *testing.T, text string) {
		err := hostapi.CheckHostname(text)
		if want := len(text) <= 64 && valid.MatchString(text) && !number.MatchString(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && hostapi.HostnameIn([]byte("# kept\n\n"+text+"\n")) != text {
			t.Errorf("%q is not found again", text)
		}
		if found := hostapi.HostnameIn([]byte(text)); strings.TrimSpace(found) != found || strings.ContainsAny(found, "\n") || strings.HasPrefix(found, "#") || !strings.Contains(text, found) {
			t.Errorf("%q holds the name %q", text, found)
		}
	})
}

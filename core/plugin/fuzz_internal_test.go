package plugin

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin/output"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Whatever is in a record of an instance, it is read or refused with the name of the file, and is not changed.
func FuzzRecord(f *testing.F) {
	const seed = `{"version":3,"instanceId":"n/r/1","role":"r","uid":1879048193,"bootId":"b","pid":42,"start":777,"digest":"sha256:00","coreStart":1,"socket":"/run/x"}`
	for _, seed := range []string{
		seed, seed[:len(seed)/2], "", "null", "[]", `{"version":2}`, "\x00\xff", `{"version":3,"pid":1e400}`,
		`{"version":3,"instanceId":"n/r/1","role":"r","bootId":"b","pid":7,"protocol":1,"socket":"/x/plugin/r.1/s","spec":{"plugin":"CgFw"}}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	l := &Launcher{runDir: dir, dataDir: dir, bootID: "b", nodeID: "n", users: &users.Users{}}
	if err := os.Mkdir(l.instancesDir(), 0o700); err != nil {
		f.Fatal(err)
	}
	path := l.recordPath("r.1")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		records, problems, err := l.readRecords()
		if err != nil || len(records)+len(problems) != 1 {
			t.Fatalf("%d records, %d problems, %v", len(records), len(problems), err)
		}
		if len(records) == 0 {
			if !strings.Contains(problems[0].Error(), path) {
				t.Errorf("the error does not name the file: %v", problems[0])
			}
		} else {
			l.belongsTo(records)(os.Getpid())
			if _, _, err := l.adoptable(records[0]); err == nil && records[0].PID <= 1 {
				t.Fatalf("%+v is not to be adopted", records[0])
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(content) {
			t.Errorf("the file was changed: %q, %v", now, err)
		}
	})
}

// Whatever the first line of a plugin is, it is explained in one line of bounded length.
func FuzzHandshakeLine(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "1|1|unix|/run/x/plugin1|grpc|\n", "1|2|unix|/x|grpc\n", "2|1|unix", "1|1|un", "||||\n", "-1|99999999999999999999|x\n",
		"1|1|tcp|127.0.0.1:1|netrpc|\x1b[2J\n", strings.Repeat("x", output.MaxFirstLine), "\xff\x00|\n",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	ended := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := ended.Run(); err != nil {
		f.Fatal(err)
	}
	cause := errors.New("Unrecognized remote plugin message: \x1b[2J")
	f.Fuzz(func(t *testing.T, line string, aborted bool) {
		r := &roleRunner{ctx: context.Background(), first: line, process: &process{state: ended.ProcessState}}
		r.aborted.Store(aborted)
		err := r.explain(cause, time.Second, time.Second)
		var version *store.VersionError
		if err == nil || !errors.As(err, &version) && !errors.Is(err, ErrHandshake) && !errors.Is(err, ErrExited) && !errors.Is(err, ErrHandshakeTimeout) {
			t.Fatalf("%q: error %v", line, err)
		}
		if text := err.Error(); !limits.Line(text) || len(text) > 5*maxProblem {
			t.Errorf("%q: %d bytes: %q", line, len(text), text)
		}
	})
}

// A status that is let through holds nothing that others would refuse, and one that is refused says why in one line.
func FuzzStatus(f *testing.F) {
	i := bareInstance()
	for _, state := range []rolev1.RoleState{rolev1.RoleState_ROLE_STATE_READY, 99} {
		status := i.statusWith(state, "a\x1b\nreason \u202e")
		status.Values = map[string]string{"v": "\x00"}
		status.Endpoints = []*rolev1.Endpoint{{Name: "e", Address: "127.0.0.1:1"}}
		encoded, err := proto.Marshal(status)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		status := i.statusWith(rolev1.RoleState_ROLE_STATE_READY, "")
		// On top of a good one, so that the parts behind are reached.
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(encoded, status); err != nil {
			t.Skip()
		}
		if err := i.check(status); err != nil {
			if !limits.Line(err.Error()) || len(err.Error()) > 2*limits.Reason {
				t.Errorf("error %q", err)
			}
			return
		}
		if !limits.Line(status.GetReason()) || len(status.GetReason()) > limits.Reason {
			t.Errorf("reason %q", status.GetReason())
		}
		for _, endpoint := range status.GetEndpoints() {
			if !limits.NameOK(endpoint.GetName()) || !limits.Line(endpoint.GetAddress()) || len(endpoint.GetAddress()) > limits.Address {
				t.Errorf("endpoint %v", endpoint)
			}
		}
		for name, value := range status.GetValues() {
			if !limits.NameOK(name) || len(value) > limits.Value {
				t.Errorf("value %q", name)
			}
		}
	})
}

// Whatever a role answers with when it refuses its configuration, there is at least one problem, and all are fit for people.
func FuzzRefusal(f *testing.F) {
	refused, err := status.New(codes.InvalidArgument, "no\n").WithDetails(&rolev1.ConfigurationProblem{Path: "/a\x1b", Message: "b"}, &rolev1.Manifest{Name: "odd"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []proto.Message{refused.Proto(), &spb.Status{Code: 3}} {
		encoded, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		answer := &spb.Status{}
		if err := proto.Unmarshal(encoded, answer); err != nil {
			t.Skip()
		}
		var refused *ConfigurationError
		if err := configurationError("r", status.FromProto(answer)); !errors.As(err, &refused) || len(refused.Problems) == 0 || len(refused.Problems) > maxConfigurationProblems {
			t.Fatalf("error %v", err)
		}
		for _, problem := range refused.Problems {
			if !limits.Line(problem.Path) || !limits.Line(problem.Message) || max(len(problem.Path), len(problem.Message)) > 4*maxProblem {
				t.Errorf("problem %+v", problem)
			}
		}
	})
}

package remit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// The names of grants.
const (
	ReplaceFile  = "replace-file"
	SetHostname  = "set-hostname"
	SetMachineID = "set-machine-id"
	Listen       = "listen"
	Connect      = "connect"
	ReadPath     = "read-path"
	WritePath    = "write-path"
	ExecutePath  = "execute-path"
	Capability   = "capability"
	Limit        = "limit"
	Privileged   = "privileged"
	// WatchOperators is who operates the cluster, for a role that lets operators in.
	WatchOperators = "watch-operators"
)

// What a manifest may give up.
const (
	GiveUpProcesses = "processes"
	GiveUpNetwork   = "network"
)

// MayGiveUp are all things that a manifest may give up, sorted.
func MayGiveUp() []string { return []string{GiveUpNetwork, GiveUpProcesses} }

// AnyPort is the value of the parameter "port" that stands for all ports.
const AnyPort = "any"

// The parameters of the grant Limit.
const (
	LimitMemory      = "memory"
	LimitProcesses   = "processes"
	LimitOpenFiles   = "open-files"
	LimitCPUWeight   = "cpu-weight"
	LimitStoreBytes  = "store-bytes"
	LimitStoreLeases = "store-leases"
)

// Remit is what grants allow. The zero value is what a role may that was granted nothing.
type Remit struct {
	// Privileged says that there is no sandbox.
	Privileged bool
	// Read, Write and Execute are the paths that are open besides the role's own: sorted, each once.
	Read, Write, Execute []string
	// Listen and Connect are TCP ports.
	Listen, Connect Ports
	// Capabilities are as in the grant, "net-bind-service": sorted, each once.
	Capabilities []string
	// Bounds in place of the defaults; 0: the default.
	Memory, Processes, OpenFiles, CPUWeight, StoreBytes, StoreLeases int64
	// HostCalls are the grants that RPCs of the host need: sorted, each once.
	HostCalls []string
}

// Ports is a set of TCP ports.
type Ports struct {
	// Any says that it is all of them.
	Any bool
	// Numbers are sorted, each once; empty if it is all of them.
	Numbers []uint16
}

// None reports whether the set is empty.
func (p Ports) None() bool { return !p.Any && len(p.Numbers) == 0 }

// Texts are the ports as in grants: numbers, or "any".
func (p Ports) Texts() []string {
	if p.Any {
		return []string{AnyPort}
	}
	var texts []string
	for _, number := range p.Numbers {
		texts = append(texts, strconv.Itoa(int(number)))
	}
	return texts
}

func (p *Ports) add(value string) {
	if value == AnyPort {
		*p = Ports{Any: true}
	}
	if p.Any {
		return
	}
	number, _ := strconv.ParseUint(value, 10, 16) // checked before
	p.Numbers = append(p.Numbers, uint16(number))
	slices.Sort(p.Numbers)
	p.Numbers = slices.Compact(p.Numbers)
}

// Tier is how far the sandbox is open.
func (r Remit) Tier() clusterv1.Tier {
	switch {
	case r.Privileged:
		return clusterv1.Tier_TIER_PRIVILEGED
	case len(r.Read)+len(r.Write)+len(r.Execute)+len(r.Capabilities)+len(r.HostCalls) > 0:
		return clusterv1.Tier_TIER_GRANTED
	}
	return clusterv1.Tier_TIER_CONFINED
}

// Error says what is wrong with one grant.
type Error struct {
	// Index is the place of the grant in its list, Parameter the name of the parameter that is wrong; empty: the grant as a whole is.
	Index     int
	Parameter string
	Problem   string
}

func (e *Error) Error() string {
	if e.Parameter != "" {
		return fmt.Sprintf("grants[%d].parameters[%q]: %s", e.Index, e.Parameter, e.Problem)
	}
	return fmt.Sprintf("grants[%d]: %s", e.Index, e.Problem)
}

// Of reads grants. The error joins an *Error for everything that is wrong; the Remit is then what the others allow.
func Of(grants []*rolev1.Grant) (Remit, error) {
	var r Remit
	var problems []error
	for i, grant := range grants {
		wrong := Check(grant)
		for _, problem := range wrong {
			problem.Index = i
			problems = append(problems, problem)
		}
		if len(wrong) == 0 {
			r.add(grant)
		}
	}
	return r, errors.Join(problems...)
}

func (r *Remit) add(grant *rolev1.Grant) {
	parameters := grant.GetParameters()
	insert := func(into *[]string, value string) {
		*into = append(*into, value)
		slices.Sort(*into)
		*into = slices.Compact(*into)
	}
	switch grant.GetName() {
	case Privileged:
		r.Privileged = true
	case Listen:
		r.Listen.add(parameters["port"])
	case Connect:
		r.Connect.add(parameters["port"])
	case ReadPath:
		insert(&r.Read, parameters["path"])
	case WritePath:
		insert(&r.Write, parameters["path"])
	case ExecutePath:
		insert(&r.Execute, parameters["path"])
	case Capability:
		insert(&r.Capabilities, parameters["name"])
	case Limit:
		for name, value := range parameters {
			*r.bound(name), _ = Quantity(value)
		}
	default:
		insert(&r.HostCalls, grant.GetName())
	}
}

// bound is where a limit is kept; nil: there is none of that name.
func (r *Remit) bound(name string) *int64 {
	switch name {
	case LimitMemory:
		return &r.Memory
	case LimitProcesses:
		return &r.Processes
	case LimitOpenFiles:
		return &r.OpenFiles
	case LimitCPUWeight:
		return &r.CPUWeight
	case LimitStoreBytes:
		return &r.StoreBytes
	case LimitStoreLeases:
		return &r.StoreLeases
	}
	return nil
}

// Quantity reads a positive number with an optional Ki, Mi or Gi.
func Quantity(text string) (int64, error) {
	digits, shift := text, 0
	for suffix, bits := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if cut, ok := strings.CutSuffix(text, suffix); ok {
			digits, shift = cut, bits
		}
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number <= 0 || number > (1<<62)>>shift || digits[0] == '+' {
		return 0, fmt.Errorf("%q is not a positive number, such as 512 or 64Mi", text)
	}
	return number << shift, nil
}

// Capabilities that can be granted: those of Linux that mean something to a process that is not root, apart from those with which it would be.
var grantable = []string{
	"audit-write", "chown", "fowner", "ipc-lock", "ipc-owner", "kill", "lease", "linux-immutable", "net-admin", "net-bind-service", "net-broadcast",
	"net-raw", "sys-boot", "sys-nice", "sys-pacct", "sys-resource", "sys-time", "syslog", "wake-alarm",
}

// Grantable are the names of the capabilities that can be granted, sorted. Not among them are those with which a process could make itself root, or
// leave its sandbox: such a role is privileged, and should say so.
func Grantable() []string { return slices.Clone(grantable) }

// Known are the names of all grants, sorted.
func Known() []string {
	return []string{Capability, Connect, ExecutePath, Limit, Listen, Privileged, ReadPath, ReplaceFile, SetHostname, SetMachineID, WatchOperators, WritePath}
}

// Check returns everything that is wrong with one grant; the Index of each is 0.
func Check(grant *rolev1.Grant) []*Error {
	switch grant.GetName() {
	case Privileged, WatchOperators:
		return parameters(grant, nil, nil)
	case Listen, Connect:
		return parameters(grant, map[string]check{"port": port}, nil)
	case ReadPath, WritePath, ExecutePath, ReplaceFile:
		return parameters(grant, map[string]check{"path": path}, nil)
	case SetMachineID:
		return parameters(grant, map[string]check{"path": path}, nil)
	case SetHostname:
		return parameters(grant, nil, map[string]check{"path": path})
	case Capability:
		return parameters(grant, map[string]check{"name": capability}, nil)
	case Limit:
		if len(grant.GetParameters()) == 0 {
			return []*Error{{Problem: "it bounds nothing: give it a parameter"}}
		}
		return parameters(grant, nil, map[string]check{
			LimitMemory: quantity, LimitProcesses: quantity, LimitOpenFiles: quantity, LimitCPUWeight: weight, LimitStoreBytes: quantity, LimitStoreLeases: quantity,
		})
	}
	return []*Error{{Problem: fmt.Sprintf("there is no grant %q: the known ones are %s", grant.GetName(), strings.Join(Known(), ", "))}}
}

type check func(value string) string

func parameters(grant *rolev1.Grant, required, optional map[string]check) (problems []*Error) {
	for name := range required {
		if _, ok := grant.GetParameters()[name]; !ok {
			problems = append(problems, &Error{Parameter: name, Problem: "is missing"})
		}
	}
	for name, value := range grant.GetParameters() {
		valid := required[name]
		if valid == nil {
			valid = optional[name]
		}
		problem := fmt.Sprintf("the grant %q has no such parameter", grant.GetName())
		if valid != nil {
			problem = valid(value)
		}
		if problem != "" {
			problems = append(problems, &Error{Parameter: name, Problem: problem})
		}
	}
	slices.SortFunc(problems, func(a, b *Error) int { return strings.Compare(a.Parameter, b.Parameter) })
	return problems
}

func port(value string) string {
	if number, err := strconv.ParseUint(value, 10, 16); value != AnyPort && (err != nil || number == 0 || value[0] == '+') {
		return fmt.Sprintf("%q is not a port: a number from 1 to 65535, or %q", value, AnyPort)
	}
	return ""
}

func path(value string) string {
	if !filepath.IsAbs(value) || filepath.Clean(value) != value || value == "/" || strings.ContainsAny(value, "\x00\n") {
		return fmt.Sprintf("%q is not an absolute and clean path below /", value)
	}
	return ""
}

func capability(value string) string {
	if !slices.Contains(grantable, value) {
		return fmt.Sprintf("%q cannot be granted: %s can", value, strings.Join(grantable, ", "))
	}
	return ""
}

func quantity(value string) string {
	if _, err := Quantity(value); err != nil {
		return err.Error()
	}
	return ""
}

func weight(value string) string {
	if number, err := Quantity(value); err != nil || number > 10000 {
		return fmt.Sprintf("%q is not a number from 1 to 10000", value)
	}
	return ""
}

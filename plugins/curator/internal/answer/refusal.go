package answer

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/limits"
)

// reasonSize is how long a reason is at most in the audit log, in bytes.
const reasonSize = 1024

// refusal is a status with what the audit log keeps of it: the caller may be told what it has sent, the audit log is read by others.
type refusal struct {
	status *status.Status
	reason string
}

var _ error = (*refusal)(nil)

func (r *refusal) Error() string { return r.status.Err().Error() }

// GRPCStatus makes a refusal the status of a call.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Errorf returns a status whose message may be kept in the audit log: it quotes nothing of the request but fields that are shown there
// (shown_in_audit), and what the cluster has stored.
func Errorf(code codes.Code, format string, args ...any) error {
	message := valid(fmt.Sprintf(format, args...))
	return &refusal{status: status.New(code, message), reason: message}
}

// Veiled returns a status whose message is for the caller only, since it quotes what the audit log does not show. The log keeps the reason.
func Veiled(code codes.Code, reason, format string, args ...any) error {
	return &refusal{status: status.New(code, valid(fmt.Sprintf(format, args...))), reason: reason}
}

// Reason returns why a call was refused, as the audit log keeps it: one line. Of an error that this package did not make it is no more than the code.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var refused *refusal
	if errors.As(err, &refused) {
		return limits.Cut(limits.Clean(limits.Cut(refused.reason, reasonSize)), reasonSize)
	}
	return "the call ended with " + status.Code(err).String()
}

// fields names the fields of a request that have problems, without what the caller has called the parts of them.
func fields(problems rules.Problems) string {
	var names []string
	seen := make(map[string]bool)
	for _, problem := range problems {
		name := problem.Field
		if end := strings.IndexAny(name, "/["); end >= 0 {
			name = name[:end]
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

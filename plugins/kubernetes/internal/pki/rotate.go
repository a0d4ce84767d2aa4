package pki

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/sdk/role"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// TrustValue is the published value by which an instance of a role of Kubernetes says with which trust it works: its revision, in decimal.
const TrustValue = "trust-revision"

// FormatRevision is the revision of a trust as that value.
func FormatRevision(revision uint64) string { return strconv.FormatUint(revision, 10) }

// tokenTime is how long a token of a service account may be used before who holds it has another one: the kubelet has it renewed well within the hour for which it is asked for.
const tokenTime = time.Hour

// podTime is how long it may take until pods find new authorities in their files: kube-controller-manager writes them into every namespace, and the kubelet puts them into place once a minute.
const podTime = 3 * time.Minute

// WatchTrust implements kubernetesv1.PKIServiceServer.
func (s *service) WatchTrust(_ *kubernetesv1.WatchTrustRequest, stream grpc.ServerStreamingServer[kubernetesv1.WatchTrustResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	for watcher := s.current.Watch(); ; {
		all, err := watcher.Next(ctx)
		if err != nil {
			return status.Error(codes.Unavailable, RoleName+" is about to stop, or nobody listens any more")
		}
		if err := stream.Send(&kubernetesv1.WatchTrustResponse{Trust: all.trust()}); err != nil {
			return err
		}
	}
}

// GetRotation implements kubernetesv1.PKIServiceServer.
func (s *service) GetRotation(ctx context.Context, _ *kubernetesv1.GetRotationRequest) (*kubernetesv1.GetRotationResponse, error) {
	if _, ok := role.OperatorFromContext(ctx); !ok {
		return nil, status.Error(codes.PermissionDenied, "only operators of the cluster are told where the rotation stands")
	}
	all, directory, err := s.asStored(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := all.keys()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	response := &kubernetesv1.GetRotationResponse{Phase: all.phase, Next: nextStep(all.phase), Waiting: waitingFor(all, directory, s.now()), Keys: keys}
	if !all.since.IsZero() {
		response.Since = timestamppb.New(all.since)
	}
	return response, nil
}

// Rotate implements kubernetesv1.PKIServiceServer.
func (s *service) Rotate(ctx context.Context, call *kubernetesv1.RotateRequest) (*kubernetesv1.RotateResponse, error) {
	who, ok := role.OperatorFromContext(ctx)
	if !ok || who.Role != hostv1.OperatorRole_OPERATOR_ROLE_OWNER {
		return nil, status.Error(codes.PermissionDenied, "only an owner of the cluster may rotate the authorities of Kubernetes")
	}
	step := call.GetStep()
	if _, known := kubernetesv1.RotationStep_name[int32(step)]; !known || step == kubernetesv1.RotationStep_ROTATION_STEP_UNSPECIFIED {
		return nil, status.Error(codes.InvalidArgument, "step: it is none of prepare, activate and retire")
	}
	present, directory, err := s.asStored(ctx)
	if err != nil {
		return nil, err
	}
	if next := nextStep(present.phase); step != next {
		return nil, status.Errorf(codes.FailedPrecondition, "the rotation of Kubernetes' authorities is %s, and the step that comes next is %s, not %s", phaseName(present.phase), stepName(next), stepName(step))
	}
	now := s.now()
	if waiting := waitingFor(present, directory, now); len(waiting) > 0 && !call.GetForce() {
		return nil, status.Errorf(codes.FailedPrecondition, "the step %s of the rotation of Kubernetes' authorities waits for %d: %s", stepName(step), len(waiting), few(waiting))
	}
	next, err := present.after(now)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the step %s cannot be taken: %s", stepName(step), err)
	}
	if call.GetDryRun() {
		next.revision = math.MaxUint64 // nobody works with what is not there
		return &kubernetesv1.RotateResponse{Phase: next.phase, Waiting: waitingFor(next, directory, now)}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	stored, err := replace(bounded, s.kv, present, next)
	switch {
	case errors.Is(err, errOvertaken):
		return nil, status.Errorf(codes.Aborted, "%s: look at where the rotation stands", err)
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "the consensus store did not answer whether the step was taken: %s: look at where the rotation stands", err)
	}
	s.log.Warn("a step of the rotation of Kubernetes' authorities was taken", "operator", who.String(), "step", stepName(step), "phase", phaseName(stored.phase), "force", call.GetForce())
	return &kubernetesv1.RotateResponse{Phase: stored.phase, Waiting: waitingFor(stored, directory, now)}, nil
}

// asStored reads the authorities from the store, and what the cluster says of its nodes.
func (s *service) asStored(ctx context.Context) (*authorities, *hostv1.Directory, error) {
	waiting, stop := context.WithTimeout(ctx, directoryTime)
	defer stop()
	directory, err := s.awaitDirectory(waiting)
	if err != nil {
		return nil, nil, status.Error(codes.Unavailable, "the node of this instance does not know at present who works in the cluster: `reeve status` says how it is")
	}
	bounded, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	all, err := load(bounded, s.kv)
	switch {
	case err != nil:
		return nil, nil, status.Errorf(codes.Unavailable, "the authorities of Kubernetes cannot be read from the consensus store: %s", err)
	case all == nil:
		return nil, nil, status.Error(codes.FailedPrecondition, "there are no authorities of Kubernetes in the consensus store")
	}
	return all, directory, nil
}

// waitingFor says who is not ready for the step that comes next, sorted: instances that do not work with the authorities as they are, and pods, for a time.
func waitingFor(all *authorities, directory *hostv1.Directory, now time.Time) []string {
	if all.phase == kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY {
		return nil
	}
	var waiting []string
	for _, node := range directory.GetNodes() {
		for _, name := range []string{RoleName, ControllerRole, WorkerRole} {
			works, has := worksWith(node, name, all.revision)
			switch {
			case works || !has:
			case node.GetHealthy():
				waiting = append(waiting, fmt.Sprintf("%s of node %s has not adopted the last step yet", name, node.GetNodeId()))
			default:
				waiting = append(waiting, fmt.Sprintf("%s of node %s has not said that it works with what the last step made, and the node is not alive", name, node.GetNodeId()))
			}
		}
	}
	slices.Sort(waiting)
	wait, what := podTime, "pods may not have found the new authorities in their files yet"
	if all.phase == kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE {
		wait, what = tokenTime, "pods may work with tokens of service accounts that the former key has signed"
	}
	if until := all.since.Add(wait); now.Before(until) {
		waiting = append(waiting, what+", until "+until.UTC().Format(time.RFC3339))
	}
	return waiting
}

// worksWith reports whether a node has a role, and whether that has said that it works with the trust of a revision.
func worksWith(node *hostv1.DirectoryNode, name string, revision uint64) (works, has bool) {
	has = slices.Contains(node.GetAssigned().GetRoles(), name)
	for _, instance := range node.GetRoles() {
		if instance.GetRole() == name {
			return instance.GetValues()[TrustValue] == FormatRevision(revision), true
		}
	}
	return false, has
}

// few are the first of many, in a line.
func few(all []string) string {
	const most = 5
	text := strings.Join(all[:min(len(all), most)], "; ")
	if len(all) > most {
		text += fmt.Sprintf("; and %d more", len(all)-most)
	}
	return text
}

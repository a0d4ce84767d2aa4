package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// noteRoom is what a note of something left out takes in a report at most, in bytes.
const noteRoom = 128

// fit returns what of a status the cluster takes: a report that it refuses would make the whole node silent for what one role said. What is left
// out is named in the reason of its instance. What roles last wrote before they failed goes first, which the node itself still tells; then values, those
// of the instances that publish most; then, in the same way, endpoints. The status itself is not changed, and is returned if it fits.
func fit(status *clusterv1.NodeStatus) *clusterv1.NodeStatus {
	if fits(status) {
		return status
	}
	fitted := &clusterv1.NodeStatus{
		NodeId: status.GetNodeId(), ApiAddress: text(status.GetApiAddress()), Isolation: status.GetIsolation(), Volume: text(status.GetVolume()),
		Version: text(status.GetVersion()), Reported: status.GetReported(), Missing: status.GetMissing(), Storage: storageOf(status.GetStorage()),
		Addresses: status.GetAddresses()[:min(len(status.GetAddresses()), limits.ReportedAddresses)], Membership: proto.CloneOf(status.GetMembership()),
		CaPins: status.GetCaPins(),
	}
	if fitted.Membership != nil {
		fitted.Membership.Reason = text(fitted.Membership.GetReason())
	}
	for _, instance := range status.GetInstances() {
		instance = proto.CloneOf(instance)
		instance.Reason = text(instance.GetReason())
		fitted.Instances = append(fitted.Instances, instance)
	}
	leaveOut(fitted, failureSize, func(i *clusterv1.InstanceStatus) string {
		i.LastFailure.Lines, i.LastFailure.Cause = nil, limits.Cut(i.GetLastFailure().GetCause(), noteRoom)
		return "what it wrote before its last failure is left out"
	})
	leaveOut(fitted, valuesSize, func(i *clusterv1.InstanceStatus) string {
		note := fmt.Sprintf("its %d published values are left out", len(i.GetValues()))
		i.Values = nil
		return note
	})
	leaveOut(fitted, endpointsSize, func(i *clusterv1.InstanceStatus) string {
		note := fmt.Sprintf("its %d endpoints are left out", len(i.GetEndpoints()))
		i.Endpoints = nil
		return note
	})
	return fitted
}

func fits(status *clusterv1.NodeStatus) bool {
	return proto.Size(status) <= limits.Report && len(status.GetAddresses()) <= limits.ReportedAddresses &&
		max(len(status.GetApiAddress()), len(status.GetVolume()), len(status.GetVersion()), len(status.GetMembership().GetReason())) <= limits.ReportedText &&
		fitsStorage(status.GetStorage()) &&
		!slices.ContainsFunc(status.GetInstances(), func(i *clusterv1.InstanceStatus) bool { return len(i.GetReason()) > limits.ReportedText })
}

// fitsStorage says whether every text of the state of the volume is as short as those of a report are: a path, or what an error says, may be long.
func fitsStorage(storage *clusterv1.StorageStatus) bool {
	return max(len(storage.GetLocation()), len(storage.GetStep()), len(storage.GetProblem())) <= limits.ReportedText &&
		!slices.ContainsFunc(storage.GetSources(), func(s *clusterv1.CukSource) bool { return len(s.GetReason()) > limits.ReportedText }) &&
		!slices.ContainsFunc(storage.GetWeaknesses(), func(w string) bool { return len(w) > limits.ReportedText })
}

func storageOf(storage *clusterv1.StorageStatus) *clusterv1.StorageStatus {
	if fitsStorage(storage) {
		return storage
	}
	storage = proto.CloneOf(storage)
	storage.Location, storage.Step, storage.Problem = text(storage.GetLocation()), text(storage.GetStep()), text(storage.GetProblem())
	for _, source := range storage.GetSources() {
		source.Reason = text(source.GetReason())
	}
	for n, weakness := range storage.GetWeaknesses() {
		storage.Weaknesses[n] = text(weakness)
	}
	return storage
}

// leaveOut takes something away from the instances that have most of it, until the status fits. Of two that have the same the later one by name
// goes first, so that the same is left out every time.
func leaveOut(status *clusterv1.NodeStatus, size func(*clusterv1.InstanceStatus) int, remove func(*clusterv1.InstanceStatus) (note string)) {
	most := slices.Clone(status.GetInstances())
	slices.SortFunc(most, func(a, b *clusterv1.InstanceStatus) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), strings.Compare(b.GetRole(), a.GetRole()))
	})
	for _, instance := range most {
		if proto.Size(status) <= limits.Report {
			return
		}
		if size(instance) <= noteRoom {
			return // what is left is smaller than the notes would be
		}
		note := remove(instance) + ": this node has more to report than the cluster takes"
		if reason := instance.GetReason(); reason != "" {
			note += "; " + reason
		}
		instance.Reason = text(note)
	}
}

func failureSize(instance *clusterv1.InstanceStatus) int {
	if instance.GetLastFailure() == nil {
		return 0
	}
	return proto.Size(&clusterv1.Failure{Lines: instance.GetLastFailure().GetLines(), Cause: instance.GetLastFailure().GetCause()})
}

func valuesSize(instance *clusterv1.InstanceStatus) int {
	return proto.Size(&clusterv1.InstanceStatus{Values: instance.GetValues()})
}

func endpointsSize(instance *clusterv1.InstanceStatus) int {
	return proto.Size(&clusterv1.InstanceStatus{Endpoints: instance.GetEndpoints()})
}

func text(text string) string { return limits.Cut(text, limits.ReportedText) }

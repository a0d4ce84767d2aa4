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
// of the instances that publish most; then, in the same way, endpoints. Before that go those of a role that publishes more than a role may, and of those that publish most while all of them
// publish more than room bytes. The status itself is not changed, and is returned if it fits.
func fit(status *clusterv1.NodeStatus, room int) *clusterv1.NodeStatus {
	if fits(status, room) {
		return status
	}
	fitted := &clusterv1.NodeStatus{
		NodeId: status.GetNodeId(), ApiAddress: text(status.GetApiAddress()), Isolation: status.GetIsolation(), Volume: text(status.GetVolume()),
		Version: text(status.GetVersion()), Reported: status.GetReported(), Missing: status.GetMissing(), Storage: storageOf(status.GetStorage()),
		Addresses: status.GetAddresses()[:min(len(status.GetAddresses()), limits.ReportedAddresses)], Membership: proto.CloneOf(status.GetMembership()),
		CaPins: status.GetCaPins(), Problem: text(status.GetProblem()),
	}
	if fitted.Membership != nil {
		fitted.Membership.Reason = text(fitted.Membership.GetReason())
	}
	for _, instance := range status.GetInstances() {
		instance = proto.CloneOf(instance)
		instance.Reason = text(instance.GetReason())
		fitted.Instances = append(fitted.Instances, instance)
	}
	for _, instance := range fitted.GetInstances() {
		if size := valuesSize(instance) + endpointsSize(instance); size > limits.Published {
			note(instance, withoutValues(instance)+fmt.Sprintf(": what it publishes has %d bytes, and the cluster takes %d of a role", size, limits.Published))
		}
	}
	taken := func() bool { return published(fitted) <= room }
	leaveOut(fitted, taken, valuesSize, fmt.Sprintf("the directory takes %d bytes of what the roles of this node publish", room), withoutValues)
	leaveOut(fitted, taken, endpointsSize, fmt.Sprintf("the directory takes %d bytes of what the roles of this node publish", room), withoutEndpoints)
	const full = "this node has more to report than the cluster takes"
	small := func() bool { return proto.Size(fitted) <= limits.Report }
	leaveOut(fitted, small, failureSize, full, func(i *clusterv1.InstanceStatus) string {
		i.LastFailure.Lines, i.LastFailure.Cause = nil, limits.Cut(i.GetLastFailure().GetCause(), noteRoom)
		return "what it wrote before its last failure is left out"
	})
	leaveOut(fitted, small, valuesSize, full, withoutValues)
	leaveOut(fitted, small, endpointsSize, full, withoutEndpoints)
	return fitted
}

func withoutValues(i *clusterv1.InstanceStatus) string {
	left := fmt.Sprintf("its %d published values are left out", len(i.GetValues()))
	i.Values = nil
	return left
}

func withoutEndpoints(i *clusterv1.InstanceStatus) string {
	left := fmt.Sprintf("its %d endpoints are left out", len(i.GetEndpoints()))
	i.Endpoints = nil
	return left
}

// published is how much of the directory what a node's instances publish takes, in bytes.
func published(status *clusterv1.NodeStatus) (bytes int) {
	for _, instance := range status.GetInstances() {
		bytes += valuesSize(instance) + endpointsSize(instance)
	}
	return bytes
}

func fits(status *clusterv1.NodeStatus, room int) bool {
	return proto.Size(status) <= limits.Report && published(status) <= room && len(status.GetAddresses()) <= limits.ReportedAddresses &&
		max(len(status.GetApiAddress()), len(status.GetVolume()), len(status.GetVersion()), len(status.GetProblem()), len(status.GetMembership().GetReason())) <= limits.ReportedText &&
		fitsStorage(status.GetStorage()) &&
		!slices.ContainsFunc(status.GetInstances(), func(i *clusterv1.InstanceStatus) bool {
			return len(i.GetReason()) > limits.ReportedText || valuesSize(i)+endpointsSize(i) > limits.Published
		})
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

// leaveOut takes something away from the instances that have most of it, until the status is as it is to be. Of two that have the same the later one by name
// goes first, so that the same is left out every time.
func leaveOut(status *clusterv1.NodeStatus, enough func() bool, size func(*clusterv1.InstanceStatus) int, why string, remove func(*clusterv1.InstanceStatus) (left string)) {
	most := slices.Clone(status.GetInstances())
	slices.SortFunc(most, func(a, b *clusterv1.InstanceStatus) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), strings.Compare(b.GetRole(), a.GetRole()))
	})
	for _, instance := range most {
		if enough() {
			return
		}
		if size(instance) <= noteRoom {
			return // what is left is smaller than the notes would be
		}
		note(instance, remove(instance)+": "+why)
	}
}

// note says in the reason of an instance what was left out of it.
func note(instance *clusterv1.InstanceStatus, note string) {
	if reason := instance.GetReason(); reason != "" {
		note += "; " + reason
	}
	instance.Reason = text(note)
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

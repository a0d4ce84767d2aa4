package hostv1

// Why a call failed, where its code alone does not tell: the reason of a google.rpc.ErrorInfo among the details of its status, in the domain
// ReasonDomain.
const (
	ReasonDomain = "reeve.host.v1"
	// ReasonOtherMachineID says that SetMachineID was refused since the machine has another ID already.
	ReasonOtherMachineID = "OTHER_MACHINE_ID"
)

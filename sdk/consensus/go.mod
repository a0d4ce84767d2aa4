module github.com/reeveproject/reeve/sdk/consensus

go 1.26.0

replace github.com/reeveproject/reeve/proto => ../../proto

replace github.com/reeveproject/reeve/sdk => ..

require (
	github.com/reeveproject/reeve/proto v0.0.0
	github.com/reeveproject/reeve/sdk v0.0.0
)

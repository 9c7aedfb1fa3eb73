//! Validated output, its reports and its publication.

use crate::{
    contract,
    refs::{ContentRef, EntityRef, LineageRef, PolicyRef, PrivacyClass},
    symbols,
};

contract! {
    /// `output::SchemaVersion` of the contract.
    SchemaVersion {
        major: u32,
        minor: u32,
        patch: u32,
    }
}
contract! {
    /// `validated_output::OutputLineage` of the contract.
    OutputLineage {
        lineage_ref: LineageRef,
        produced_by: EntityRef,
        many derived_from: EntityRef,
    }
}
contract! {
    /// `validated_output::TypedResultPublicationRecord` of the contract.
    TypedResultPublicationRecord {
        record_schema_version: u32,
        validated_output_id: String,
        schema_id: String,
        schema_version: SchemaVersion,
        canonical_value_ref: ContentRef,
        many validation_report_refs: ValidationReportRef,
        many source_attempt_ids: String,
        many policy_refs: PolicyRef,
        status: TypedResultPublicationStatus,
        privacy: PrivacyClass,
        redacted_summary: String,
    }
}
symbols! {
    /// `validated_output::TypedResultPublicationStatus` of the contract.
    open TypedResultPublicationStatus {
        Published = "published", PolicyDenied = "policy_denied",
    }
}
contract! {
    /// `validated_output::ValidatedOutput` of the contract.
    ValidatedOutput {
        record_schema_version: u32,
        output_id: String,
        schema_id: String,
        schema_version: SchemaVersion,
        schema_fingerprint: String,
        canonical_value_ref: ContentRef,
        many validation_report_refs: ValidationReportRef,
        many validation_attempts: String,
        many repair_attempts: String,
        many source_attempt_ids: String,
        many content_refs: ContentRef,
        lineage: OutputLineage,
        many policy_refs: PolicyRef,
        privacy: PrivacyClass,
        redacted_summary: String,
    }
}
contract! {
    /// `validated_output::ValidationReportRecord` of the contract.
    ValidationReportRecord {
        record_schema_version: u32,
        validation_attempt_id: String,
        schema_id: String,
        schema_version: SchemaVersion,
        source_attempt_id: String,
        candidate_content_ref: ContentRef,
        validation_report_ref: ContentRef,
        status: ValidationStatus,
        maybe redacted_error_summary: String,
        many policy_refs: PolicyRef,
        privacy: PrivacyClass,
        redacted_summary: String,
    }
}
contract! {
    /// `validated_output::ValidationReportRef` of the contract.
    ValidationReportRef {
        validation_attempt_id: String,
        report_ref: ContentRef,
        status: ValidationStatus,
        redacted_summary: String,
    }
}
symbols! {
    /// `validated_output::ValidationStatus` of the contract.
    open ValidationStatus {
        Passed = "passed", Failed = "failed",
    }
}

//! Structured output: validation and repair.

use crate::{
    contract,
    payload::validated_output::{SchemaVersion, TypedResultPublicationRecord, ValidatedOutput, ValidationReportRecord},
    refs::PrivacyClass,
    symbols, variants,
};

variants! {
    /// `journal::StructuredOutputRecord` of the contract.
    StructuredOutput: adjacent("record_type", "record") {
        1 Lifecycle(StructuredOutputLifecycleRecord) = "lifecycle",
        2 Validation(ValidationRecord) = "validation",
        3 Repair(RepairRecord) = "repair",
        4 RepairExhaustion(RepairExhaustionRecord) = "repair_exhaustion",
        5 ValidationReport(ValidationReportRecord) = "validation_report",
        6 ValidatedOutput(ValidatedOutput) = "validated_output",
        7 TypedResultPublication(TypedResultPublicationRecord) = "typed_result_publication",
    }
}
contract! {
    /// `structured_output::RepairExhaustionRecord` of the contract.
    RepairExhaustionRecord {
        record_schema_version: u32,
        record_kind: RepairRecordKind,
        schema_id: String,
        output_schema_version: SchemaVersion,
        validation_attempts: Vec<String>,
        repair_attempts: Vec<String>,
        source_attempt_ids: Vec<String>,
        candidate_content_ref: String,
        retry_exhausted: bool,
        redacted_summary: String,
        reason: String,
        privacy: PrivacyClass,
    }
}
contract! {
    /// `structured_output::RepairPrompt` of the contract.
    RepairPrompt {
        record_schema_version: u32,
        repair_attempt_id: String,
        validation_attempt_id: String,
        source_attempt_id: String,
        schema_id: String,
        output_schema_version: SchemaVersion,
        schema_fingerprint: String,
        repair_adapter_ref: String,
        attempt_index: u32,
        max_repair_attempts: u32,
        include_schema_in_prompt: bool,
        redacted_errors: Vec<ValidationErrorSummary>,
        candidate_content: RepairPromptCandidateContent,
        prompt_summary: String,
    }
}
contract! {
    /// `content_ref_only` of [`RepairPromptCandidateContent`].
    RepairPromptCandidateContentContentRefOnly {
        candidate_content_ref: String,
    }
}
contract! {
    /// `redacted_candidate` of [`RepairPromptCandidateContent`].
    RepairPromptCandidateContentRedactedCandidate {
        redacted_summary: String,
    }
}
contract! {
    /// `omitted` of [`RepairPromptCandidateContent`].
    RepairPromptCandidateContentOmitted {}
}
variants! {
    /// `structured_output::RepairPromptCandidateContent` of the contract.
    RepairPromptCandidateContent: internal("type") {
        1 ContentRefOnly(RepairPromptCandidateContentContentRefOnly) = "content_ref_only",
        2 RedactedCandidate(RepairPromptCandidateContentRedactedCandidate) = "redacted_candidate",
        3 Omitted(RepairPromptCandidateContentOmitted) = "omitted",
    }
}
contract! {
    /// `structured_output::RepairRecord` of the contract.
    RepairRecord {
        record_schema_version: u32,
        record_kind: RepairRecordKind,
        repair_attempt_id: String,
        validation_attempt_id: String,
        source_attempt_id: String,
        schema_id: String,
        output_schema_version: SchemaVersion,
        schema_fingerprint: String,
        repair_adapter_ref: String,
        attempt_index: u32,
        max_repair_attempts: u32,
        prompt: RepairPrompt,
        redacted_summary: String,
        privacy: PrivacyClass,
    }
}
symbols! {
    /// `structured_output::RepairRecordKind` of the contract.
    open RepairRecordKind {
        RepairRequested = "repair_requested", RepairExhausted = "repair_exhausted",
    }
}
symbols! {
    /// `structured_output::StructuredOutputLifecycleKind` of the contract.
    open StructuredOutputLifecycleKind {
        Requested = "requested", ValidationStarted = "validation_started",
    }
}
contract! {
    /// `structured_output::StructuredOutputLifecycleRecord` of the contract.
    StructuredOutputLifecycleRecord {
        record_schema_version: u32,
        record_kind: StructuredOutputLifecycleKind,
        schema_id: String,
        output_schema_version: SchemaVersion,
        schema_fingerprint: String,
        maybe source_attempt_id: String,
        maybe candidate_content_ref: String,
        privacy: PrivacyClass,
        redacted_summary: String,
    }
}
symbols! {
    /// `structured_output::ValidationErrorCode` of the contract.
    open ValidationErrorCode {
        CandidateTooLarge = "candidate_too_large", InvalidJson = "invalid_json",
        UnsupportedDialect = "unsupported_dialect", UnsupportedSchemaRef = "unsupported_schema_ref",
        SchemaContractViolation = "schema_contract_violation", HostileSchema = "hostile_schema",
        MissingRequiredField = "missing_required_field", TypeMismatch = "type_mismatch",
        AdditionalPropertyDenied = "additional_property_denied", EnumMismatch = "enum_mismatch",
        MinLengthViolation = "min_length_violation", MaxLengthViolation = "max_length_violation",
        SemanticValidatorUnavailable = "semantic_validator_unavailable",
    }
}
contract! {
    /// `structured_output::ValidationErrorSummary` of the contract.
    ValidationErrorSummary {
        code: ValidationErrorCode,
        path: String,
        redacted_summary: String,
    }
}
contract! {
    /// `structured_output::ValidationRecord` of the contract.
    ValidationRecord {
        record_schema_version: u32,
        record_kind: ValidationRecordKind,
        schema_id: String,
        output_schema_version: SchemaVersion,
        schema_fingerprint: String,
        validation_attempt_id: String,
        source_attempt_id: String,
        candidate_content_ref: String,
        privacy: PrivacyClass,
        redacted_summary: String,
        many errors: ValidationErrorSummary,
        many validation_attempts: String,
        many repair_attempts: String,
        many source_attempt_ids: String,
        maybe retry_exhausted: bool,
    }
}
symbols! {
    /// `structured_output::ValidationRecordKind` of the contract.
    open ValidationRecordKind {
        ValidationSucceeded = "validation_succeeded", ValidationFailed = "validation_failed",
        SchemaRejected = "schema_rejected", TerminalFailure = "terminal_failure",
    }
}
